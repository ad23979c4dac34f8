package sqlite

import "testing"

func TestNetworkName(t *testing.T) {
	t.Parallel()
	t.Run("[stores/SQ6] file systems reached over a network are known by their number", func(t *testing.T) {
		t.Parallel()
		for magic, want := range map[uint32]string{
			0x6969: "nfs", 0xFF534D42: "smb", 0xFE534D42: "smb", 0x00C36400: "ceph", 0x0BD00BD0: "lustre",
			0xEF53: "", 0x58465342: "", 0x9123683E: "", 0x01021994: "", 0x794C7630: "", 0x65735546: "",
		} {
			if got := networkName(magic); got != want {
				t.Errorf("%x: %q, want %q", magic, got, want)
			}
		}
		if got := networkFS(t.TempDir()); got != "" {
			t.Errorf("the folder of this test: %s", got)
		}
	})
}
