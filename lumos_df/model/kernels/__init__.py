"""What operators, layers and stages cost: scalar kernels that allocate nothing."""
