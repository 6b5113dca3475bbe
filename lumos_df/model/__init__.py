"""Model, hardware, plan and software: what they are, and what they cost."""
