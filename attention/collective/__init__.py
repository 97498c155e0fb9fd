"""What attention kernels are made of, besides the pieces of GEMMs: softmax, masks, the mainloop, the producer and the store."""
