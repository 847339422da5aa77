"""What tests in several folders share: waiting, ports, clients, jobs, and programs that are forked warm."""
