"""What is peculiar to GPUs: how NCCL and CUDA tell of failures, and what the hardware shows. Never imports torch."""
