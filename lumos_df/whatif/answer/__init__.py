"""What is said of a changed job: times, rates, memory, and the job as traces of a corpus."""
