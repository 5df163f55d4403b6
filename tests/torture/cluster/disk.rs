//! A disk of our own, whose power can be cut: an ext4 file system in a file.

use super::LACKS;
use super::postgres::run;
use super::process::program;
use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Sparse: what is not written costs nothing.
const SIZE: u64 = 2 << 30;

/// `EXT4_IOC_SHUTDOWN` without flushing the log: what was not synced is lost, and nothing can be synced any more. The call needs
/// a program, since `ioctl` is nothing that safe Rust has; Perl is on every Debian.
const CUT: &str = r#"open(my $disk, "<", $ARGV[0]) or die "open: $!"; my $how = pack("L", 2);
ioctl($disk, 0x8004587d, $how) or die "ioctl: $!";"#;

/// For an unmount: until the last process that was killed has let go.
const PATIENCE: Duration = Duration::from_secs(10);

/// What in its environment makes a program skip all syncs and believe that they were done: libeatmydata.
pub(crate) fn no_syncs() -> Result<(String, String), String> {
    let places = [
        "/usr/lib/x86_64-linux-gnu/libeatmydata.so.1",
        "/usr/lib/aarch64-linux-gnu/libeatmydata.so.1",
        "/usr/lib/libeatmydata.so.1",
    ];
    let library = places.into_iter().find(|at| Path::new(at).is_file());
    let library = library.ok_or(format!("{LACKS}no libeatmydata"))?;
    Ok(("LD_PRELOAD".to_owned(), library.to_owned()))
}

/// A mounted file system.
pub(crate) struct Disk {
    /// Where it is mounted.
    pub(crate) mount: PathBuf,
    image: PathBuf,
}

impl Disk {
    /// Makes one in `folder`, or says what is missing.
    pub(crate) fn create(folder: &Path) -> Result<Self, String> {
        let mkfs = program("mkfs.ext4").ok_or("no mkfs.ext4")?;
        program("perl").ok_or("no perl")?;
        let disk = Self {
            mount: folder.join("disk"),
            image: folder.join("disk.img"),
        };
        let text = |e: std::io::Error| e.to_string();
        std::fs::create_dir_all(&disk.mount).map_err(text)?;
        File::create(&disk.image)
            .and_then(|file| file.set_len(SIZE))
            .map_err(text)?;
        // No reserve for root: when it is full, it is full for everybody.
        run(Command::new(mkfs)
            .args(["-q", "-F", "-m", "0"])
            .arg(&disk.image))?;
        disk.mount_again()?;
        Ok(disk)
    }

    /// Everything written so far is on it.
    pub(crate) fn sync(&self) -> Result<(), String> {
        run(Command::new("sync").arg("-f").arg(&self.mount)).map(drop)
    }

    /// Cuts the power.
    pub(crate) fn cut(&self) -> Result<(), String> {
        run(Command::new("perl").args(["-e", CUT]).arg(&self.mount)).map(drop)
    }

    /// Takes it off and puts it back: what is there then is what had been synced. Nobody may have a file open on it.
    pub(crate) fn power_on(&self) -> Result<(), String> {
        let began = Instant::now();
        while let Err(why) = run(Command::new("umount").arg(&self.mount)) {
            if began.elapsed() > PATIENCE {
                return Err(why);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.mount_again()
    }

    // Nothing is written back by the kernel's own clock: what is not synced is lost for sure.
    fn mount_again(&self) -> Result<(), String> {
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop,commit=300"]);
        run(mount.arg(&self.image).arg(&self.mount)).map(drop)
    }

    /// Writes and syncs as fast as it goes, until what is answered is dropped or the power goes.
    pub(crate) fn keep_busy(&self) -> Result<Busy, String> {
        let file = File::create(self.mount.join("neighbour"));
        let mut file = file.map_err(|e| e.to_string())?;
        let over = Arc::new(AtomicBool::new(false));
        let busy = Busy(over.clone());
        std::thread::spawn(move || {
            let piece = vec![7; 16 << 20];
            // An error means that the power is gone.
            while !over.load(Ordering::Relaxed)
                && file.rewind().is_ok()
                && file.write_all(&piece).is_ok()
                && file.sync_data().is_ok()
            {}
        });
        Ok(busy)
    }

    /// Fills it up to the last byte, until what is answered is dropped.
    pub(crate) fn fill(&self) -> Result<Filled, String> {
        let path = self.mount.join("ballast");
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let mut file = file.map_err(|e| e.to_string())?;
        let filled = Filled(path);
        for piece in [vec![0; 8 << 20], vec![0; 4_096]] {
            while file.write_all(&piece).is_ok() {}
        }
        Ok(filled)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Also with files open on it: it goes when the last one is closed.
        let _ = run(Command::new("umount").arg("-l").arg(&self.mount));
        let _ = std::fs::remove_file(&self.image);
    }
}

/// Who keeps a disk busy.
pub(crate) struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What fills a disk.
pub(crate) struct Filled(PathBuf);

impl Drop for Filled {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
