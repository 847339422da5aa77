"""Reports the progress of training that another library runs. Each module imports its library."""
