// The C++17 interface of Thalweg: all of it. docs/cpp.md has the overview.
#ifndef THALWEG_HPP
#define THALWEG_HPP

#include <thalweg/callback.hpp>
#include <thalweg/cdr.hpp>
#include <thalweg/error.hpp>
#include <thalweg/fields.hpp>
#include <thalweg/message.hpp>
#include <thalweg/node.hpp>
#include <thalweg/policies.hpp>
#include <thalweg/publisher.hpp>
#include <thalweg/sample.hpp>
#include <thalweg/schema.hpp>
#include <thalweg/service.hpp>
#include <thalweg/span.hpp>
#include <thalweg/subscriber.hpp>
#include <thalweg/type.hpp>

#endif
