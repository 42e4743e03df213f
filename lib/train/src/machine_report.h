// What a run says about its machines and the rank for which others wait. Private to the crate.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8/base/slow_rank.h"
#include "fp8/comm/mesh.h"
#include "fp8/json/value.h"

namespace fp8::train {

// The time of each rank without its waits, as one reduction by maximum makes it of the terms of all ranks: the term of
// a rank is `seconds` in nanoseconds at its place, and 0 elsewhere.
std::vector<std::int64_t> busy_term(const comm::Communicator& all, double seconds);

// The rank with the largest lag by these times; nothing if there is none, see find_slow_rank().
std::optional<SlowRank> slow_rank(const comm::Mesh& mesh, std::span<const std::int64_t> busy);

// Adds to the record of a run the machines of `hosts`, which is empty if there is one, each with its ranks.
void add_hosts(std::span<const std::string> hosts, json::Value& run_record);

// Adds the slow rank to the record of a step.
void add_slow_rank(const std::optional<SlowRank>& slow, json::Value& step_record);

// A line for the table of a profile, of seconds that this rank computed; empty if there is no such rank. Collective.
std::string line_of_slow_rank(const comm::Mesh& mesh, double busy);

}  // namespace fp8::train
