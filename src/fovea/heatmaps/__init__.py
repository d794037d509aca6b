"""Where a network looks: methods, targets, heatmaps in the user's own pixels."""
