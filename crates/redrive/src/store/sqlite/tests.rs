//! What only a store in a file can show: crashes, damage, copies, full disks, and plans of its queries.
