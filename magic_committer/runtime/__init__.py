"""What all mechanisms work with: threads, patience, clock and store, passed as one `Runtime`."""
