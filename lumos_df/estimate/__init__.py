"""What a job would take under another plan: one configuration or a hundred thousand, from nothing but their figures."""
