//! An ordinary client, in blocking form: one call after the other, as a person types them.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tenured::bus::proxy::{self, Endpoint, ManagerProxy, Options};
use zbus::{OwnedVariant, Variant};

use super::decoy::Decoy;
use super::kernel;
use super::wait::eventually;

/// Longer than any call but a waiting ClaimTask takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection of its own.
pub struct Client {
    runtime: tokio::runtime::Runtime,
    pub manager: ManagerProxy<'static>,
}

/// An error answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The last part of its name: `StaleRun`.
    pub name: String,
    pub text: String,
}

impl From<zbus::Error> for Refused {
    fn from(error: zbus::Error) -> Self {
        let (name, text) = match error {
            zbus::Error::MethodError(name, text, _) => (name.to_string(), text.unwrap_or_default()),
            zbus::Error::FDO(error) => (zbus::DBusError::name(&*error).to_string(), error.to_string()),
            other => ("no answer".to_owned(), format!("{other:?}")),
        };
        let name = name.strip_prefix(proxy::ERROR_PREFIX).unwrap_or(&name).to_owned();
        Self { name, text }
    }
}

/// An answer or the name of the refusal: what most tests compare.
pub trait Named<T> {
    fn refusal(self) -> String;
}

impl<T: std::fmt::Debug> Named<T> for Result<T, Refused> {
    #[track_caller]
    fn refusal(self) -> String {
        self.expect_err("it should have been refused").name
    }
}

impl Client {
    pub fn connect(address: &str) -> Result<Self, Refused> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = Endpoint::Address(address.to_owned());
        let manager = runtime.block_on(async {
            tokio::time::timeout(PATIENCE, proxy::manager(&endpoint)).await.expect("an answer in time")
        })?;
        Ok(Self { runtime, manager })
    }

    /// Connects as another user: the credentials of a connection are those of the thread that makes it.
    pub fn connect_as(uid: u32, address: &str) -> Result<Self, Refused> {
        let address = address.to_owned();
        let thread = std::thread::spawn(move || {
            let gid = rustix::process::Gid::from_raw(uid);
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            let uid = rustix::process::Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            Self::connect(&address)
        });
        thread.join().unwrap()
    }

    /// Any call of the proxy.
    pub fn ask<T>(&self, call: impl Future<Output = zbus::Result<T>>) -> Result<T, Refused> {
        self.runtime.block_on(async {
            tokio::time::timeout(PATIENCE, call).await.expect("an answer in time").map_err(Refused::from)
        })
    }

    /// A call by name, with a body of any signature.
    pub fn raw<B>(&self, method: &str, body: &B) -> Result<(), Refused>
    where
        B: serde::Serialize + zbus::DynamicType,
    {
        self.ask(async {
            self.manager
                .inner()
                .connection()
                .call_method(Some(proxy::BUS_NAME), proxy::OBJECT_PATH, Some(proxy::INTERFACE), method, body)
                .await
                .map(|_| ())
        })
    }

    #[track_caller]
    pub fn create(&self, title: &str, properties: &Options<'_>) -> u64 {
        self.try_create(title, properties).unwrap()
    }

    pub fn try_create(&self, title: &str, properties: &Options<'_>) -> Result<u64, Refused> {
        self.ask(self.manager.create_task(title, properties)).map(|(task, _)| task)
    }

    /// Claims this task lease-only, or as the options say; the run.
    #[track_caller]
    pub fn claim(&self, task: u64, options: Options<'_>) -> u64 {
        self.try_claim(task, options).unwrap()
    }

    pub fn try_claim(&self, task: u64, mut options: Options<'_>) -> Result<u64, Refused> {
        options.insert("Task", Variant::from(task));
        self.ask(self.manager.claim_task("", &options)).map(|(_, run, _)| run)
    }

    #[track_caller]
    pub fn task(&self, task: u64) -> Row {
        Row(self.ask(self.manager.get_task(task)).unwrap())
    }

    #[track_caller]
    pub fn run(&self, run: u64) -> Row {
        Row(self.ask(self.manager.get_run(run)).unwrap())
    }

    #[track_caller]
    pub fn status(&self, task: u64) -> String {
        self.task(task).text("Status")
    }

    /// Waits until the task has this status.
    #[track_caller]
    pub fn becomes(&self, task: u64, status: &str) {
        eventually("the task's status", || {
            let row = self.task(task);
            if row.text("Status") == status { Ok(()) } else { Err(format!("{row:?}")) }
        });
    }

    /// A new task whose worker is this process, proven by pidfd; the task and its run.
    #[track_caller]
    pub fn held_by(&self, decoy: &Decoy, properties: &Options<'_>) -> (u64, u64) {
        let task = self.create("held", properties);
        let run = self.claim(task, crate::options! { "PidFD" => zbus::Fd::from(kernel::pidfd(decoy.pid)) });
        (task, run)
    }

    /// What the task's newest run has written.
    #[track_caller]
    pub fn output(&self, task: u64) -> String {
        let run = self.runs(task).last().expect("a run").number("Run").cast_unsigned();
        let fd = OwnedFd::from(self.ask(self.manager.open_output(run, &Options::new())).unwrap());
        let mut text = String::new();
        std::fs::File::from(fd).read_to_string(&mut text).unwrap();
        text
    }

    pub fn rows(&self, rows: Result<Vec<BTreeMap<String, OwnedVariant>>, Refused>) -> Vec<Row> {
        rows.unwrap().into_iter().map(Row).collect()
    }

    #[track_caller]
    pub fn runs(&self, task: u64) -> Vec<Row> {
        self.rows(self.ask(self.manager.list_runs(task, &Options::new())))
    }

    #[track_caller]
    pub fn comments(&self, task: u64) -> Vec<Row> {
        self.rows(self.ask(self.manager.list_comments(task, &Options::new())))
    }

    /// Everything as configured, but nothing is started.
    #[track_caller]
    pub fn sweep(&self) -> Report {
        self.sweep_with(&crate::options! { "Dispatch" => false })
    }

    /// These passes, and nothing is started.
    #[track_caller]
    pub fn sweep_passes(&self, passes: &[&str]) -> Report {
        let passes: Vec<String> = passes.iter().map(ToString::to_string).collect();
        self.sweep_with(&crate::options! { "Dispatch" => false, "Passes" => passes })
    }

    #[track_caller]
    pub fn sweep_with(&self, options: &Options<'_>) -> Report {
        Report(Row(self.ask(self.manager.sweep(options)).unwrap()))
    }
}

/// A row of the bus (`a{sv}`).
#[derive(Clone, Debug)]
pub struct Row(pub BTreeMap<String, OwnedVariant>);

impl Row {
    #[track_caller]
    fn get(&self, key: &str) -> OwnedVariant {
        self.0.get(key).unwrap_or_else(|| panic!("no {key} in {:?}", self.0)).try_clone().unwrap()
    }

    pub fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    #[track_caller]
    pub fn text(&self, key: &str) -> String {
        self.get(key).try_into().unwrap_or_else(|_| panic!("{key} is no text in {:?}", self.0))
    }

    /// A text that is empty or missing where there is none.
    pub fn word(&self, key: &str) -> String {
        if self.has(key) { self.text(key) } else { String::new() }
    }

    /// A number of any width; 0 where it is missing.
    #[track_caller]
    pub fn number(&self, key: &str) -> i64 {
        if !self.has(key) {
            return 0;
        }
        match &*self.get(key) {
            Variant::U32(number) => i64::from(*number),
            Variant::I32(number) => i64::from(*number),
            Variant::U64(number) => number.cast_signed(),
            Variant::I64(number) => *number,
            other => panic!("{key} is no number but {other:?}"),
        }
    }

    #[track_caller]
    pub fn numbers(&self, key: &str) -> Vec<u64> {
        if !self.has(key) {
            return Vec::new();
        }
        self.get(key).try_into().unwrap_or_else(|_| panic!("{key} is no list of numbers in {:?}", self.0))
    }

    #[track_caller]
    pub fn texts(&self, key: &str) -> Vec<String> {
        if !self.has(key) {
            return Vec::new();
        }
        self.get(key).try_into().unwrap_or_else(|_| panic!("{key} is no list of texts in {:?}", self.0))
    }
}

/// What a sweep did.
#[derive(Clone, Debug)]
pub struct Report(pub Row);

impl Report {
    /// The tasks under this cause.
    #[track_caller]
    pub fn of(&self, cause: &str) -> Vec<u64> {
        self.0.numbers(cause)
    }

    #[track_caller]
    pub fn held(&self) -> Vec<(u64, String)> {
        self.pairs("held")
    }

    #[track_caller]
    pub fn signalled(&self) -> Vec<(u64, i32)> {
        self.pairs("signalled")
    }

    #[track_caller]
    fn pairs<T>(&self, key: &str) -> Vec<T>
    where
        T: for<'a> TryFrom<Variant<'a>>,
        Vec<T>: TryFrom<OwnedVariant>,
    {
        if !self.0.has(key) {
            return Vec::new();
        }
        self.0.get(key).try_into().unwrap_or_else(|_| panic!("{key} has another type in {self:?}"))
    }
}
