"""What belongs to a job, as a cluster is asked for it: names, pods and what they need, as plain JSON."""
