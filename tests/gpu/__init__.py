"""What cannot run without a GPU, as one short plan: `make gpu`."""
