//! Files of ROS 2's definitions: where they are, and the types that they describe.

use crate::failure::{Failure, Result};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use thalweg::codec::{Definitions, RosError, TypeDescription};

/// These directories, or those of the ROS 2 that this shell has set up: each prefix has the definitions of its packages in `share`.
///
/// # Errors
/// One that is named is no directory.
pub(crate) fn directories_or_installed(named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if let Some(absent) = named.iter().find(|directory| !directory.is_dir()) {
        return Err(Failure::Usage(format!("--definitions {}: there is no such directory", absent.display())));
    }
    if !named.is_empty() {
        return Ok(named.to_vec());
    }
    let prefixes: OsString = std::env::var_os(PREFIXES).unwrap_or_default();
    let installed = std::env::split_paths(&prefixes).filter(|prefix| !prefix.as_os_str().is_empty());
    Ok(installed.map(|prefix| prefix.join("share")).collect())
}

/// Describes a type. The definitions that it refers to are read one after the other, as they are missed. Those that are known anyway,
/// and a package's own `Header`, are read where they are there.
pub(crate) fn describe(name: &str, directories: &[PathBuf]) -> Result<TypeDescription> {
    let mut definitions = Definitions::new();
    for known in Definitions::known() {
        add(&mut definitions, known, directories)?;
    }
    loop {
        let missing = match definitions.describe(name) {
            Ok(message) => return Ok(message),
            Err(RosError::Unknown { name, .. }) => name,
            Err(wrong) => return Err(Failure::Usage(format!("--type {name}: {wrong}"))),
        };
        if !add(&mut definitions, &missing, directories)? {
            return Err(absent(&missing, directories));
        }
        if !definitions.names().any(|known| known == missing) {
            return Err(Failure::Usage(format!("{} defines no {missing}", file_of(&missing).display())));
        }
        let package = missing.split('/').next().unwrap_or_default();
        add(&mut definitions, &format!("{package}/msg/Header"), directories)?;
    }
}

/// Adds the file of a type, if one of the directories has it.
fn add(definitions: &mut Definitions, name: &str, directories: &[PathBuf]) -> Result<bool> {
    let file = file_of(name);
    let Some((path, text)) = read(&file, directories)? else { return Ok(false) };
    let added = definitions.add(&file.with_extension("").to_string_lossy(), &text);
    added.map_err(|wrong| Failure::Usage(format!("{}: {wrong}", path.display())))?;
    Ok(true)
}

/// The file of a type below a directory of packages: `std_msgs/msg/String.msg`. Parts of a service or an action are in its file.
fn file_of(name: &str) -> PathBuf {
    let (path, short) = name.rsplit_once('/').unwrap_or(("", name));
    let own = short.split_once('_').map_or(short, |(own, _)| own);
    let kind = path.rsplit('/').next().unwrap_or("msg");
    PathBuf::from(format!("{path}/{own}.{kind}"))
}

/// The text of the first such file.
fn read(file: &Path, directories: &[PathBuf]) -> Result<Option<(PathBuf, String)>> {
    let found = directories.iter().map(|directory| directory.join(file)).find(|path| path.exists());
    let Some(path) = found else { return Ok(None) };
    let unreadable = |why: &dyn std::fmt::Display| Failure::Usage(format!("{}: {why}", path.display()));
    if !path.is_file() {
        return Err(unreadable(&"is no file"));
    }
    let mut text = String::new();
    let opened = File::open(&path).map_err(|error| unreadable(&error))?;
    opened.take(LONGEST).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    Ok(Some((path, text)))
}

fn absent(name: &str, directories: &[PathBuf]) -> Failure {
    let searched: Vec<String> = directories.iter().map(|directory| directory.display().to_string()).collect();
    let searched = match searched.is_empty() {
        true => format!("no directory, as {PREFIXES} is not set"),
        false => searched.join(", "),
    };
    Failure::Usage(format!(
        "--type: no file {} in {searched}; name its directory with --definitions DIR, or set up ROS 2 in this shell",
        file_of(name).display()
    ))
}

/// The bytes of a file that are read: more are refused as a definition.
const LONGEST: u64 = 2 << 20;
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
        write("other/msg/Header.msg", "uint8 own\n");
        write("other/msg/Headed.msg", "Header header\n");
        let headed = describe("other/msg/Headed", &directories).unwrap();
        assert_eq!(headed.schema.unwrap().to_string(), "Headed{header:Header{own:u8}}", "the package's own");
        let none = describe("robot/msg/Arm", &[]).unwrap_err().text().to_owned();
        assert!(none.contains("AMENT_PREFIX_PATH is not set"), "{none}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
