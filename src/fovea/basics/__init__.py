"""What everything stands on: errors, boxes, files, intervals, provenance, the registry."""
