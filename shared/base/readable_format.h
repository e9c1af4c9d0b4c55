// readable_format: numbers, sizes and times for people: a terminal, a log line, a message. The page has the same rules
// (page.js). Files, JSON and Prometheus have the full precision and UTC (number_format.h, clock.h).
//
// Threads: pure functions; format_local_time() reads the time zone of the process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stoker {

// `digits` significant digits, at most 7: "0.01230", "27 800", "1.20e-8"; an exponent below 1e-4 and from 1e7 on. "NaN", "inf".
std::string format_number(double value, int digits);
// A loss or a metric: 4 digits.
inline std::string format_value(double value) { return format_number(value, 4); }
// A rate, a learning rate or a number of milliseconds: 3 digits. Below 0.01 ms: "<0.01".
inline std::string format_rate(double value) { return format_number(value, 3); }
std::string format_milliseconds(double value);
// A setting in its usual notation, without zeros at the end: "0.0003", "1.5e-05".
std::string format_setting(double value);
// 0.123 as "12.3".
std::string format_percent(double fraction);
// 1234567 as "1 234 567".
std::string format_count(uint64_t value);
// "512 B", "4.81 MB": decimal units.
std::string format_bytes(uint64_t bytes);
// "0.5 s", "4 min 2 s", "3 h 7 min", "2 d 4 h"; "-": not known.
std::string format_duration(double seconds);
// The time left: "40 s", "3 min 20 s", "27 min", "3 h 7 min". An estimate is not known more exactly.
double round_estimate(double seconds);
std::string format_estimate(double seconds);
// Of an ISO 8601 time, in the zone of the process: "Fri 2026-11-27 23:10:05 CET". The text itself, if it is no time.
std::string format_local_time(std::string_view iso8601);

// "CET"
std::string local_zone();

}  // namespace stoker
