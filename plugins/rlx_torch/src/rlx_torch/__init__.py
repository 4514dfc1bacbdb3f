"""PyTorch modules for rlx (`from_torch`), rlx for `torch.compile`, and pretrained checkpoints (`from_pretrained`)."""
