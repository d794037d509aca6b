"""An nn.Module with its transform and labels, by name or wrapped; where it may be cut, what it sees, what it costs."""
