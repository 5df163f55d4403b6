//! The socket as the HTTP library sees it: everything passes, and [`Shared`] hears of it.
//!
//! [`Tcp`] is the lowest layer and knows what the client takes; [`Socket`] is the highest and knows what was asked and what
//! has left. With TLS its session lies between the two.

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

/// A way to a client: TCP, or TLS over it.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Asks the kernel whether the client has gone; an error says so.
    fn still_there(&mut self, cx: &Context<'_>) -> io::Result<()>;

    /// Whether it has taken bytes that are not in the kernel yet.
    fn holds_back(&self) -> bool;

    /// What it runs over.
    fn tcp(&mut self) -> &mut TcpStream;
}

/// A TCP connection whose client's pace is noted.
pub(super) struct Tcp {
    pub(super) stream: TcpStream,
    shared: Arc<Shared>,
}

impl Tcp {
    pub(super) fn new(stream: TcpStream, shared: Arc<Shared>) -> Self {
        Self { stream, shared }
    }

    fn noted(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.shared.write(written.is_ready());
        written
    }
}

impl Transport for Tcp {
    fn still_there(&mut self, _: &Context<'_>) -> io::Result<()> {
        match SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit()]) {
            Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    fn holds_back(&self) -> bool {
        false
    }

    fn tcp(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

impl AsyncRead for Tcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// What the HTTP library reads from and writes to.
pub(super) struct Socket<'a, T> {
    stream: &'a mut T,
    shared: Arc<Shared>,
}

impl<'a, T: Transport> Socket<'a, T> {
    pub(super) fn new(stream: &'a mut T, shared: Arc<Shared>) -> Self {
        Self { stream, shared }
    }

    /// Looks whether the client has gone, when there are messages on their way to it. The event loop would say so too, but
    /// only in its next round, and until then the kernel takes bytes for a client that is known to be closed.
    fn still_there(&mut self, cx: &Context<'_>) -> io::Result<()> {
        if self.shared.carries_leases() {
            self.stream.still_there(cx)
        } else {
            Ok(())
        }
    }
}

impl<T: Transport> Read for Socket<'_, T> {
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

impl<T: Transport> Write for Socket<'_, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.still_there(cx)?;
        Pin::new(&mut *self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.still_there(cx)?;
        Pin::new(&mut *self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Called with the HTTP library's buffer empty. A TCP socket has none of its own; TLS has, and its flush ends when the
    /// last record is in the kernel.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.stream.holds_back() {
            self.still_there(cx)?;
        }
        ready!(Pin::new(&mut *self.stream).poll_flush(cx))?;
        self.shared.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_shutdown(cx)
    }
}
