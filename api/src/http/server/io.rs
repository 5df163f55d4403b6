//! The socket as the HTTP library sees it: everything passes, and [`Shared`] hears of it.

use super::delivery::Shared;
use hyper::rt::{Read, ReadBufCursor, Write};
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Most bytes of one read. The bytes are looked at on their way, so they pass through the stack; a copy of this size costs
/// less than the call that brought it.
const CHUNK: usize = 16 << 10;

pub(super) struct Socket<'a> {
    stream: &'a mut TcpStream,
    shared: Arc<Shared>,
}

impl<'a> Socket<'a> {
    pub(super) fn new(stream: &'a mut TcpStream, shared: Arc<Shared>) -> Self {
        Self { stream, shared }
    }

    /// Asks the kernel whether the client has gone, when there are messages on their way to it. The event loop would say so
    /// too, but only in its next round, and until then the kernel takes bytes for a client that is known to be closed.
    fn still_there(&self) -> io::Result<()> {
        if !self.shared.carries_leases() {
            return Ok(());
        }
        match SockRef::from(&*self.stream).peek(&mut [MaybeUninit::uninit()]) {
            Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    fn noted(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.shared.write(written.is_ready());
        written
    }
}

impl Read for Socket<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut chunk = [const { MaybeUninit::<u8>::uninit() }; CHUNK];
        let most = buf.remaining().min(CHUNK);
        let mut read = ReadBuf::uninit(&mut chunk[..most]);
        ready!(Pin::new(&mut *self.stream).poll_read(cx, &mut read))?;
        let bytes = read.filled();
        if !bytes.is_empty() {
            self.shared.read(bytes);
            buf.put_slice(bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for Socket<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.still_there()?;
        let written = Pin::new(&mut *self.stream).poll_write(cx, buf);
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.still_there()?;
        let written = Pin::new(&mut *self.stream).poll_write_vectored(cx, bufs);
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Called with the HTTP library's buffer empty, and a TCP socket has none of its own.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut *self.stream).poll_flush(cx))?;
        self.shared.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_shutdown(cx)
    }
}
