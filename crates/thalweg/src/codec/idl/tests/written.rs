//! Texts as other programs write and read them.

use super::*;
use crate::codec::Definitions;

/// As `rosidl_adapter` writes them (`msg.idl.em`, `struct.idl.em`).
const IMU: &[&str] = &[
    r#"// generated from rosidl_adapter/resource/msg.idl.em
// with input from builtin_interfaces/msg/Time.msg
// generated code does not contain a copyright notice


module builtin_interfaces {
  module msg {
    @verbatim (language="comment", text=
      "This message communicates ROS Time defined here:" "\n"
      "https://design.ros2.org/articles/clock_and_time.html")
    struct Time {
      @verbatim (language="comment", text=
        "The seconds component, valid over all int32 values.")
      int32 sec;

      uint32 nanosec;
    };
  };
};
"#,
    r#"#include "builtin_interfaces/msg/Time.idl"

module std_msgs {
  module msg {
    struct Header {
      builtin_interfaces::msg::Time stamp;

      string frame_id;
    };
  };
};
"#,
    r#"module geometry_msgs {
  module msg {
    struct Quaternion {
      @default (value=0.0)
      double x;

      @default (value=0.0)
      double y;

      @default (value=0.0)
      double z;

      @default (value=1.0)
      double w;
    };
  };
};
"#,
    r#"module geometry_msgs {
  module msg {
    struct Vector3 {
      double x;

      double y;

      double z;
    };
  };
};
"#,
    r#"// generated from rosidl_adapter/resource/msg.idl.em
// with input from sensor_msgs/msg/Imu.msg
// generated code does not contain a copyright notice

#include "geometry_msgs/msg/Quaternion.idl"
#include "geometry_msgs/msg/Vector3.idl"
#include "std_msgs/msg/Header.idl"

module sensor_msgs {
  module msg {
    typedef double double__9[9];
    @verbatim (language="comment", text=
      "This is a message to hold data from an IMU (Inertial Measurement Unit)" "\n"
      "" "\n"
      "Accelerations should be in m/s^2 (not in g's), and rotational velocity should be in rad/sec")
    struct Imu {
      std_msgs::msg::Header header;

      geometry_msgs::msg::Quaternion orientation;

      @verbatim (language="comment", text=
        "Row major about x, y, z axes")
      double__9 orientation_covariance;

      geometry_msgs::msg::Vector3 angular_velocity;

      double__9 angular_velocity_covariance;

      geometry_msgs::msg::Vector3 linear_acceleration;

      double__9 linear_acceleration_covariance;
    };
  };
};
"#,
];

#[test]
fn what_rosidl_writes_has_the_schema_of_the_message() {
    let (mut idl, mut definitions) = (Idl::new(), Definitions::new());
    for text in IMU.iter().rev() {
        idl.add("generated.idl", text).unwrap(); // a type may come after those that refer to it
    }
    for (name, text) in [
        ("geometry_msgs/Quaternion", "float64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1"),
        ("geometry_msgs/Vector3", "float64 x\nfloat64 y\nfloat64 z"),
        (
            "sensor_msgs/Imu",
            "std_msgs/Header header\ngeometry_msgs/Quaternion orientation\nfloat64[9] orientation_covariance\n\
             geometry_msgs/Vector3 angular_velocity\nfloat64[9] angular_velocity_covariance\n\
             geometry_msgs/Vector3 linear_acceleration\nfloat64[9] linear_acceleration_covariance",
        ),
    ] {
        definitions.add(name, text).unwrap();
    }
    let (ours, theirs) =
        (idl.describe("sensor_msgs::msg::Imu").unwrap(), definitions.describe("sensor_msgs/Imu").unwrap());
    assert_eq!((&ours.name, ours.hash, &ours.schema), (&theirs.name, theirs.hash, &theirs.schema));
    assert_eq!(ours.ros, None);
    assert_eq!(idl.keys("sensor_msgs::msg::Imu").unwrap(), [""; 0]);
}

#[test]
fn what_rosidl_makes_of_constants_and_arrays_of_messages_is_read() {
    let text = r#"module a { module msg {
        typedef b::msg::Point b__msg__Point;
        typedef b__msg__Point b__msg__Point__2[2];
        module A_Constants {
          @verbatim (language="comment", text="a" "\n" "b")
          const octet FIRST = 1;
          const float RATIO = -1.5;
          const string NAME = "it's";
          const wstring WIDE = "w";
          const boolean ON = TRUE;
        };
        struct A {
          @default (value="(1, 2)")
          @unit (value="m")
          sequence<uint8, 3> bytes;
          b__msg__Point__2 points;
          sequence<string<3>, 4> names;
        };
        struct Empty { uint8 structure_needs_at_least_one_member; };
      }; };"#;
    let mut idl = set(text);
    idl.add("Point.idl", "module b { module msg { struct Point { float x; }; }; };").unwrap();
    let found = idl.describe("a::msg::A").unwrap().schema.unwrap().to_string();
    assert_eq!(found, "A{bytes:sequence<u8>,points:array<Point{x:f32},2>,names:sequence<string>}");
    idl.describe("a::msg::Empty").unwrap();
}

#[test]
fn what_cyclone_dds_reads_is_read() {
    let text = r#"
#ifndef ROBOT_IDL
#define ROBOT_IDL
module Robot
{
  const unsigned long JOINTS = 7;
  @final enum Mode { MODE_IDLE, MODE_MOVE, MODE_STOP };
  typedef sequence<octet> Blob;
  typedef float Pose[4][4];

  @nested @final
  struct Identity { @key unsigned long long serial; string<32> vendor; };

  /* One arm. */
  @topic @appendable
  struct Arm
  {
    @key Identity id;
    @key @must_understand char slot;
    Mode mode;             // what it does
    double joints[JOINTS];
    Pose pose;
    @optional Blob camera;
    @id(17) sequence<Mode, 4> plan;
  };
  #pragma keylist Old id
};
#endif // ROBOT_IDL
"#;
    let idl = set(text);
    let mode = schema("Robot::Mode", text);
    assert_eq!(
        schema("Robot::Arm", text),
        format!(
            "Arm{{id:Identity{{serial:u64,vendor:string}},slot:u8,mode:{mode},joints:array<f64,7>,pose:array<array<f32,4>,4>,\
             camera:option<sequence<u8>>,plan:sequence<{mode}>}}"
        )
    );
    assert_eq!(idl.keys("Robot::Arm").unwrap(), ["id.serial", "slot"]);
    let arm = idl.describe("Robot::Arm").unwrap().schema.unwrap();
    Fields::find(&arm, &idl.keys("Robot::Arm").unwrap()).unwrap();
    assert_eq!(
        idl.names().collect::<Vec<_>>(),
        ["Robot::Arm", "Robot::Blob", "Robot::Identity", "Robot::Mode", "Robot::Pose"]
    );
}
