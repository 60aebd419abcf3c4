"""Functions of torch and operators on tensors."""
