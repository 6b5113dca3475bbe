"""What a trace says about the job behind it: layers and micro-batches, the model's dimensions, the plan."""
