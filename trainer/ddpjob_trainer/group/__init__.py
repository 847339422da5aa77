"""The process group: how the processes of a world find each other, communicate, and leave."""
