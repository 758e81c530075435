//! Ethernet devices whose other end is a program (TAP, `/dev/net/tun`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// One TAP device. Frames that its network namespace sends through it are read here, and frames written here arrive
/// there. The kernel has segmented and checksummed every frame before it is read. The device vanishes when this is
/// dropped.
pub struct Tap {
    fd: OwnedFd,
}

/// Longest device name in bytes.
const NAME: usize = libc::IFNAMSIZ - 1;

impl Tap {
    /// Makes a device of this name (at most 15 bytes) in the calling thread's network namespace; it is down at first.
    ///
    /// # Errors
    /// PermissionDenied without CAP_NET_ADMIN; NotFound without `/dev/net/tun`; InvalidInput for a name that is too long.
    pub fn open(device: &str) -> io::Result<Self> {
        if device.is_empty() || device.len() > NAME {
            let text = format!("device name {device:?}: 1 to {NAME} bytes are allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let fd = OwnedFd::from(File::options().read(true).write(true).open("/dev/net/tun")?);
        rustix::fs::fcntl_setfl(&fd, rustix::fs::OFlags::NONBLOCK)?;
        attach(&fd, device)?;
        Ok(Self { fd })
    }

    /// The next frame that the namespace sent, without waiting: its length, or `None` when there is none.
    ///
    /// # Errors
    /// The error of read(2); a frame longer than the buffer is cut.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.fd, buffer) {
            Ok(length) => Ok(Some(length)),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the namespace a frame.
    ///
    /// # Errors
    /// The error of write(2): EIO while the device is down.
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.fd, frame)?;
        Ok(())
    }
}

impl AsFd for Tap {
    /// Readable when there is a frame.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[allow(unsafe_code)]
fn attach(fd: &OwnedFd, device: &str) -> io::Result<()> {
    // SAFETY: ifreq is plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The length was checked: a zero stays at the end.
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes().take(NAME)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open, and TUNSETIFF takes an ifreq that outlives the call.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_cannot_be_is_refused() {
        for name in ["", "sixteen-bytes-00"] {
            assert_eq!(Tap::open(name).err().map(|e| e.kind()), Some(io::ErrorKind::InvalidInput), "{name}");
        }
    }
}
