about := Hardened HDF5: untrusted files opened through an allow-list, typed datasets with digests, equal bytes for equal content
deps  := base json dtype
pkgs  := hdf5
