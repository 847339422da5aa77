"""What tells DDPJob where a training is that another library runs. Each module needs its library, and imports it."""
