"""PyTorch modules for rlx (`from_torch`), rlx for `torch.compile`, and rlx functions as operators of torch (`as_torch`)."""
