package sqlite

import "syscall"

// networkFS names the network file system that holds dir, or returns "". A folder that cannot be asked counts as local:
// opening it will tell.
func networkFS(dir string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return ""
	}
	return networkName(uint32(s.Type)) //nolint:gosec // the magic numbers are 32 bits wide
}

// networkName names a file system type of statfs(2) that is reached over a network, or returns "". FUSE is left out:
// it serves local disks as well.
func networkName(magic uint32) string {
	switch magic {
	case 0x6969:
		return "nfs"
	case 0xFF534D42, 0xFE534D42, 0x517B:
		return "smb"
	case 0x00C36400:
		return "ceph"
	case 0x5346414F, 0x6B414653:
		return "afs"
	case 0x0BD00BD0:
		return "lustre"
	case 0x47504653:
		return "gpfs"
	case 0x01161970:
		return "gfs2"
	case 0x7461636F:
		return "ocfs2"
	case 0x73757245:
		return "coda"
	}
	return ""
}
