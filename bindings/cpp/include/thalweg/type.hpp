// Types of messages, as publisher and subscriber compare them.
#ifndef THALWEG_TYPE_HPP
#define THALWEG_TYPE_HPP

#include <thalweg/codec.hpp>
#include <thalweg/error.hpp>
#include <thalweg/fields.hpp>
#include <thalweg/handle.hpp>
#include <thalweg/schema.hpp>

#include <thalweg.h>

#include <string>
#include <tuple>

namespace thalweg {

// The description of a type. Ports keep what they need of it.
class Type {
public:
    // Plain bytes.
    static Type bytes() {
        thalweg_type* made = nullptr;
        check(thalweg_type_bytes(&made));
        return Type(made);
    }

    // A type of ROS 2: its name, such as "std_msgs/msg/String", and the text of its .msg file, with those of the types that
    // it refers to behind it, as rosbag2 and MCAP write them.
    static Type ros(const std::string& name, const std::string& text) {
        thalweg_type* made = nullptr;
        check(thalweg_type_ros(name.c_str(), text.c_str(), &made));
        return Type(made);
    }

    // A type by its schema, as JSON: R"({"sequence":"u8"})", or as `thalweg info --json` shows it.
    static Type schema(const std::string& json) {
        thalweg_type* made = nullptr;
        check(thalweg_type_schema(nullptr, json.c_str(), &made));
        return Type(made);
    }

    // The type of the values of `T`: the same as in other languages with these names and fields.
    template <class T>
    static Type of() {
        return schema(thalweg::schema::of<T>());
    }

    // The memory of a `T`: numbers without padding, or arrays and structs of such.
    template <class T>
    static Type plain() {
        thalweg_type* made = nullptr;
        check(thalweg_type_plain(plain_name<T>().c_str(), sizeof(T), alignof(T), &made));
        return Type(made);
    }

    // Its name without path and package.
    std::string name() const { return detail::text(thalweg_type_name(handle_.get())); }

    // `true` if a subscriber of this type reads samples of the other one.
    bool accepts(const Type& offered) const noexcept { return thalweg_type_accepts(handle_.get(), offered.handle_.get()); }

    const thalweg_type* get() const noexcept { return handle_.get(); }

private:
    explicit Type(thalweg_type* handle) noexcept : handle_(handle) {}

    // The name that Rust has for the same memory.
    template <class T>
    static std::string plain_name() {
        if constexpr (fields::is_listed<T>) {
            return std::string(fields::of<T>.name);
        } else if constexpr (cdr::is_number<T>) {
            return thalweg::schema::simple_name<T>();
        } else {
            return "[" + plain_name<typename T::value_type>() + "; " + std::to_string(std::tuple_size_v<T>) + "]";
        }
    }

    detail::Handle<thalweg_type, thalweg_type_free> handle_;
};

}  // namespace thalweg

#endif
