#include "shared/control/hello_reply.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <filesystem>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"
#include "shared/control/grammar.h"
#include "shared/control/protocol.h"

namespace stoker::control {

namespace json = boost::json;

Result<RunIdentity> identify_run(const std::string& run_dir) {
  struct stat found {};
  if (::stat(run_dir.c_str(), &found) != 0) return Status::from_errno(errno, "stat " + run_dir);
  std::error_code error;
  const auto absolute = std::filesystem::canonical(run_dir, error);
  if (error) return Status::from_errno(error.value(), "resolve " + run_dir);
  return RunIdentity{
      .run_dir = absolute.string(),
      .run_dir_id = std::to_string(found.st_dev) + ":" + std::to_string(found.st_ino),
      .pid = ::getpid()};
}

std::string to_json(const HelloReply& reply) {
  json::array names;
  for (const auto& info : methods())
    names.emplace_back(json::string_view(info.name.data(), info.name.size()));
  return json::serialize(json::object{{"protocol_version", kProtocolVersion},
                                      {"stoker_version", reply.stoker_version},
                                      {"role", reply.role},
                                      {"methods", std::move(names)},
                                      {"run_dir", valid_utf8(reply.run.run_dir)},
                                      {"run_dir_id", reply.run.run_dir_id},
                                      {"pid", reply.run.pid}});
}

Result<HelloReply> parse_hello_reply(std::string_view text) {
  const auto read = [](const json::object& fields) -> Result<HelloReply> {
    if (const auto version = fields.at("protocol_version").to_number<uint64_t>();
        version != kProtocolVersion)
      return Status(StatusCode::kMismatch,
                    "stokerd " + std::string(fields.at("stoker_version").as_string()) +
                        " speaks protocol version " + std::to_string(version) +
                        ", this client version " + std::to_string(kProtocolVersion) +
                        "; use the stokerctl of its release");
    return HelloReply{.stoker_version = fields.at("stoker_version").as_string().c_str(),
                      .role = fields.at("role").as_string().c_str(),
                      .run = {.run_dir = fields.at("run_dir").as_string().c_str(),
                              .run_dir_id = fields.at("run_dir_id").as_string().c_str(),
                              .pid = fields.at("pid").to_number<int>()}};
  };
  return parse_json_object<HelloReply>(text, "the reply to hello", read);
}

}  // namespace stoker::control
