"""What a model, a plan and a GPU cost: kernels, collectives, memory, schedule."""
