//! Lines of standard input as values of a ROS 2 type.

use super::source::{Lines, Next, Source};
use crate::failure::{Failure, Result};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use thalweg::PublisherBuilder;
use thalweg::codec::{Definitions, RosError, Schema, TypeDescription, Untyped, from_json};

/// Values in JSON, one in each line.
pub(super) struct Values {
    lines: Lines,
    number: u64,
    message: TypeDescription,
    schema: Schema,
    encoded: Vec<u8>,
}

impl Values {
    /// Values of the type of this name, whose definitions are in these directories.
    pub(super) fn of(name: &str, directories: &[PathBuf], lines: Lines) -> Result<Self> {
        let message = describe(name, &directories_or_installed(directories))?;
        match message.schema.clone() {
            Some(schema) => Ok(Self { lines, number: 0, message, schema, encoded: Vec::new() }),
            None => Err(Failure::Usage(format!(
                "--type {name}: a service, an action, or a message with a wstring, which middlewares encode differently; give a message without one"
            ))),
        }
    }

    fn wrong(&self, because: &dyn std::fmt::Display) -> Failure {
        Failure::Usage(format!("standard input, line {}: {because}", self.number))
    }
}

impl Source for Values {
    type Message = Untyped;

    fn next(&mut self) -> Result<Next<'_, Untyped>> {
        let text = match self.lines.next()? {
            Next::Sample(line, _) => line.to_owned(),
            Next::Nothing => return Ok(Next::Nothing),
            Next::End => return Ok(Next::End),
        };
        self.number += 1;
        let json = serde_json::from_str(&text).map_err(|wrong| self.wrong(&wrong))?;
        self.encoded = from_json(&self.schema, &json).map_err(|wrong| self.wrong(&wrong.problem))?;
        Ok(Next::Sample(&self.encoded[..], self.encoded.len()))
    }

    fn describe(&self, builder: PublisherBuilder<Untyped>) -> PublisherBuilder<Untyped> {
        builder.described(self.message.clone())
    }
}

/// These directories, or those of the ROS 2 that this shell has set up: each prefix has the definitions of its packages in `share`.
fn directories_or_installed(named: &[PathBuf]) -> Vec<PathBuf> {
    if !named.is_empty() {
        return named.to_vec();
    }
    let prefixes: OsString = std::env::var_os(PREFIXES).unwrap_or_default();
    std::env::split_paths(&prefixes).filter(|prefix| !prefix.as_os_str().is_empty()).map(|p| p.join("share")).collect()
}

/// Describes a type. The definitions that it refers to are read one after the other, as they are missed.
fn describe(name: &str, directories: &[PathBuf]) -> Result<TypeDescription> {
    let mut definitions = Definitions::new();
    loop {
        let missing = match definitions.describe(name) {
            Ok(message) => return Ok(message),
            Err(RosError::Unknown { name, .. }) if definitions.names().all(|known| known != name) => name,
            Err(wrong) => return Err(Failure::Usage(format!("--type {name}: {wrong}"))),
        };
        let file = file_of(&missing);
        let (path, text) = read(&file, directories)?;
        let name = file.with_extension("");
        let added = definitions.add(&name.to_string_lossy(), &text);
        added.map_err(|wrong| Failure::Usage(format!("{}: {wrong}", path.display())))?;
        if !definitions.names().any(|known| known == missing) {
            return Err(Failure::Usage(format!("{}: defines no {missing}", path.display())));
        }
    }
}

/// The file of a type below a directory of packages: `std_msgs/msg/String.msg`. Parts of a service or an action are in its file.
fn file_of(name: &str) -> PathBuf {
    let (path, short) = name.rsplit_once('/').unwrap_or(("", name));
    let own = short.split_once('_').map_or(short, |(own, _)| own);
    let kind = path.rsplit('/').next().unwrap_or("msg");
    PathBuf::from(format!("{path}/{own}.{kind}"))
}

fn read(file: &Path, directories: &[PathBuf]) -> Result<(PathBuf, String)> {
    for directory in directories {
        let path = directory.join(file);
        match std::fs::read_to_string(&path) {
            Ok(text) => return Ok((path, text)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::Usage(format!("{}: {error}", path.display()))),
        }
    }
    let searched: Vec<String> = directories.iter().map(|directory| directory.display().to_string()).collect();
    let searched =
        if searched.is_empty() { format!("no directory, as {PREFIXES} is not set") } else { searched.join(", ") };
    Err(Failure::Usage(format!(
        "--type: no file {} in {searched}; name its directory with --definitions DIR, or set up ROS 2 in this shell",
        file.display()
    )))
}

/// Where ROS 2's `setup.bash` says what is installed.
const PREFIXES: &str = "AMENT_PREFIX_PATH";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_in_the_file_of_its_name() {
        for (name, file) in [
            ("std_msgs/msg/String", "std_msgs/msg/String.msg"),
            ("std_srvs/srv/Empty_Request", "std_srvs/srv/Empty.srv"),
            ("a_b/action/Go_SendGoal_Request", "a_b/action/Go.action"),
            ("a_b/msg/C", "a_b/msg/C.msg"),
        ] {
            assert_eq!(file_of(name), Path::new(file), "{name}");
        }
    }

    #[test]
    fn definitions_are_read_as_they_are_missed() {
        let dir = std::env::temp_dir().join(format!("thalweg-definitions-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = dir.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("robot/msg/Arm.msg", "std_msgs/Header header\nJoint[] joints\n");
        write("robot/msg/Joint.msg", "float64 angle\nother/Unit unit\n");
        let directories = [dir.join("nothing"), dir.clone()];
        let missing = describe("robot/msg/Arm", &directories).unwrap_err().text().to_owned();
        assert!(missing.contains("no file other/msg/Unit.msg in") && missing.contains("--definitions"), "{missing}");
        write("other/msg/Unit.msg", "uint8 DEGREE=1\nuint8 unit\n");
        let arm = describe("robot/Arm", &directories).unwrap();
        assert_eq!(arm.ros.unwrap().name, "robot/msg/Arm");
        assert!(arm.schema.unwrap().to_string().contains("joints:sequence<Joint{angle:f64,unit:Unit{unit:u8}}>"));
        write("robot/msg/Bad.msg", "float64 Angle\n");
        let bad = describe("robot/msg/Bad", &directories).unwrap_err().text().to_owned();
        assert!(bad.contains("Bad.msg: robot/msg/Bad, line 1: expected a field's name"), "{bad}");
        let none = describe("robot/msg/Arm", &[]).unwrap_err().text().to_owned();
        assert!(none.contains("AMENT_PREFIX_PATH is not set"), "{none}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
