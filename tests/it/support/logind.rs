//! A small login manager on the private bus: gives out delay locks, sees when they are let go, and announces.

use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A lock that was given out.
pub struct Lock {
    pub what: String,
    pub who: String,
    pub mode: String,
    /// The end that shows when the other one is closed.
    end: OwnedFd,
}

impl Lock {
    /// Whether the holder has closed it.
    pub fn is_let_go(&self) -> bool {
        let mut polled = [PollFd::new(&self.end, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }
}

type Locks = Arc<Mutex<Vec<Lock>>>;

struct Manager {
    locks: Locks,
}

#[zbus::interface(name = "org.freedesktop.login1.Manager")]
impl Manager {
    fn inhibit(&self, what: &str, who: &str, _why: &str, mode: &str) -> zbus::OwnedFd {
        let (end, given) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let (what, who, mode) = (what.to_owned(), who.to_owned(), mode.to_owned());
        self.locks.lock().unwrap().push(Lock { what, who, mode, end });
        given.into()
    }

    #[zbus(property)]
    fn preparing_for_shutdown(&self) -> bool {
        false
    }
}

/// See the module. Ends with its value.
pub struct Logind {
    pub locks: Locks,
    said: mpsc::Sender<(&'static str, bool)>,
}

impl Logind {
    pub fn start(address: &str) -> Self {
        let locks = Locks::default();
        let (said, to_say) = mpsc::channel::<(&'static str, bool)>();
        let (ready, is_ready) = mpsc::channel();
        let (address, given) = (address.to_owned(), Arc::clone(&locks));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let (announce, mut announced) = tokio::sync::mpsc::unbounded_channel();
            std::thread::spawn(move || {
                while let Ok(word) = to_say.recv() {
                    announce.send(word).unwrap();
                }
            });
            runtime.block_on(async move {
                let path = "/org/freedesktop/login1";
                let builder = zbus::connection::Builder::address(address.as_str());
                let builder = builder.serve_at(path, Manager { locks: given });
                let builder = builder.name("org.freedesktop.login1");
                let connection = builder.build().await.unwrap();
                ready.send(()).unwrap();
                while let Some((member, begins)) = announced.recv().await {
                    let interface = "org.freedesktop.login1.Manager";
                    connection.emit_signal(None::<&str>, path, interface, member, &begins).await.unwrap();
                }
            });
        });
        is_ready.recv().expect("a login manager on the bus");
        Self { locks, said }
    }

    pub fn announce(&self, member: &'static str, begins: bool) {
        self.said.send((member, begins)).unwrap();
    }

    /// How many locks of this kind are held, and how many were let go.
    pub fn count(&self, what: &str) -> (usize, usize) {
        let locks = self.locks.lock().unwrap();
        let of_kind = locks.iter().filter(|lock| lock.what == what);
        let (gone, held): (Vec<&Lock>, Vec<&Lock>) = of_kind.partition(|lock| lock.is_let_go());
        (held.len(), gone.len())
    }
}
