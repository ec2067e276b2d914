//! A message bus of our own: `type=system`, as closed by default as the real one, with the policy we ship.

use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::source::root;

/// Ends with its value.
pub struct PrivateBus {
    child: Child,
    pub address: String,
}

impl PrivateBus {
    pub fn start(directory: &Path) -> Self {
        let config = directory.join("bus.conf");
        std::fs::write(&config, configuration(&directory.join("bus"))).unwrap();
        let mut child = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", config.display()))
            .args(["--nofork", "--nopidfile", "--print-address=1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(directory.join("bus.log")).unwrap())
            .spawn()
            .expect("dbus-daemon; tests/run installs it");
        let mut address = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        assert!(address.starts_with("unix:"), "dbus-daemon said {address:?}");
        Self { child, address }
    }
}

impl PrivateBus {
    /// Ends it; every connection is lost.
    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for PrivateBus {
    fn drop(&mut self) {
        self.stop();
    }
}

fn configuration(socket: &Path) -> String {
    let ours = root().join("dist/dbus-1/system.d/org.tenured1.conf");
    // Our policy lets root alone own the name; who runs the tests as somebody else has a bus of his own.
    let tester = match rustix::process::geteuid() {
        uid if uid.is_root() => String::new(),
        uid => format!(r#"<policy user="{uid}"><allow own="org.tenured1"/></policy>"#),
    };
    // Source: /usr/share/dbus-1/system.conf, the parts that every policy rests on.
    format!(
        r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus.Introspectable"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus.Properties"/>
  </policy>
  <policy context="default">
    <allow own="org.freedesktop.login1"/>
    <allow send_destination="org.freedesktop.login1"/>
  </policy>
  <include>{ours}</include>
  {tester}
  <limit name="max_connections_per_user">2000</limit>
  <limit name="max_completed_connections">4000</limit>
</busconfig>
"#,
        socket = socket.display(),
        ours = ours.display(),
    )
}
