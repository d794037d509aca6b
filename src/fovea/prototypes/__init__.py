"""What the prototypes of a ProtoPNet are, and what a picture has in common with them."""
