"""Keys of a node: how topics and filters become keys, the segments it is in, how messages spread there."""
