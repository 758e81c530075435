// Errors of the library, as exceptions. Each says whose fault it was and the remedy.
#ifndef THALWEG_ERROR_HPP
#define THALWEG_ERROR_HPP

#include <thalweg.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace thalweg {

// Kinds of errors: those of thalweg_status.
enum class Status : std::uint32_t {
    // The caller's fault: a bad name, a value out of range, a message that is no value of its type.
    invalid = THALWEG_INVALID,
    // Nothing came within the time.
    timeout = THALWEG_TIMEOUT,
    // The node or port was closed, or belongs to the parent of this process.
    closed = THALWEG_CLOSED,
    // Somebody refused: the name is taken, the session is not admitted, a kernel gives no such priority.
    refused = THALWEG_REFUSED,
    // No such port.
    not_found = THALWEG_NOT_FOUND,
    // A message is larger than the port's max_message.
    too_large = THALWEG_TOO_LARGE,
    // Another node or the network: it does not answer, or says no.
    peer = THALWEG_PEER,
    // The kernel of this host has no permission or resource for it.
    system = THALWEG_SYSTEM,
    // A fault of the library.
    internal = THALWEG_INTERNAL,
};

// An error. `what()` is cause and remedy in one text.
class Error : public std::runtime_error {
public:
    Error(Status status, const std::string& text) : std::runtime_error(text), status_(status) {}

    Status status() const noexcept { return status_; }

    // The cause: the text up to its first semicolon.
    std::string cause() const {
        const std::string text = what();
        return text.substr(0, text.find("; "));
    }

    // The remedy behind it; empty where the text has none of its own.
    std::string remedy() const {
        const std::string text = what();
        const std::size_t end = text.find("; ");
        return end == std::string::npos ? std::string() : text.substr(end + 2);
    }

private:
    Status status_;
};

// Throws what a call of the C interface reports.
inline void check(thalweg_status status) {
    if (status == THALWEG_OK) return;
    const std::string text = thalweg_last_error();
    throw Error(static_cast<Status>(status), text.empty() ? thalweg_status_name(status) : text);
}

}  // namespace thalweg

#endif
