"""Reports the progress of training that another library runs. Each module needs its library, and imports it."""
