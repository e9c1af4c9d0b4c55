// stoker-web: serves a page of all runs in a directory (run_server.h).
#include <csignal>
#include <exception>
#include <filesystem>
#include <iostream>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "ctl/run_server.h"
#include "shared/base/build_info.h"
#include "shared/base/cli_documents.h"
#include "shared/base/cli_options.h"
#include "shared/base/clock.h"
#include "shared/base/descriptor_limit.h"
#include "shared/base/exception_status.h"
#include "shared/base/utf8.h"

namespace stoker::ctl {
namespace {

constexpr const char* kFooter = R"(Examples:
  stoker-web runs                             all runs below runs/, http://127.0.0.1:9760
  stoker-web --listen 127.0.0.1:0 runs/demo   one run, on a free port
  ssh -L 9760:127.0.0.1:9760 HOST             for a browser on another host

The runs can be running, have ended, or be copies; they are only read. Every local user can read a
TCP port.

Exit codes: 0 after SIGINT or SIGTERM, 64 usage error, 69 the address cannot be used, 78 no such
directory.)";

int fail(const std::string& message, ExitCode code) {
  std::cerr << "stoker-web: " << printable_lines(message, "  ") << "\n";
  return static_cast<int>(code);
}

int run(int argc, char** argv) {
  std::string directory, listen = "127.0.0.1:9760";
  CLI::App app("stoker-web shows all runs of a directory on a page.", "stoker-web");
  app.set_version_flag("--version", version_text("stoker-web"));
  app.add_option("DIR", directory, "A run directory, or a directory with runs")->required();
  app.add_option("--listen", listen, "Loopback address and port; port 0: any")
      ->type_name("ADDRESS:PORT")
      ->capture_default_str();
  app.footer(kFooter);
  add_document_option(app, 1);
  try {
    parse_options(app, argc, argv);
  } catch (const CLI::CallForVersion& answer) {
    std::cout << answer.what() << "\n";
    return 0;
  } catch (const CLI::Success&) {
    std::cout << help_text(app);
    return 0;
  } catch (const CLI::ParseError& error) {
    return fail(std::string(error.what()) + "; try stoker-web --help", ExitCode::kUsage);
  }
  raise_descriptor_limit();
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error))
    return fail(directory + ": no such directory", ExitCode::kConfiguration);
  const auto address = config::parse_http_listen(listen);
  if (!address.ok() || !address->unix_path.empty())
    return fail(
        "--listen: must be a loopback address and a port, such as 127.0.0.1:9760 (ssh -L for other "
        "hosts), got '" +
            listen + "'",
        ExitCode::kUsage);
  boost::asio::io_context io(1);
  boost::asio::signal_set signals(io, SIGINT, SIGTERM);
  RunServer server(io, system_clock(), *address, directory);
  if (const Status started = server.start(); !started.ok())
    return fail(started.with_context("--listen").message(), ExitCode::kUnavailable);
  const bool is_v6 = address->address.find(':') != std::string::npos;
  std::cout << "http://" << (is_v6 ? "[" + address->address + "]" : address->address) << ":"
            << server.port() << "/" << std::endl;
  signals.async_wait([&](const boost::system::error_code&, int) {
    server.stop();
    io.stop();
  });
  io.run();
  return 0;
}

}  // namespace
}  // namespace stoker::ctl

int main(int argc, char** argv) {
  try {
    return stoker::ctl::run(argc, argv);
  } catch (const std::exception& error) {
    const stoker::Status status = stoker::to_status(error);
    return stoker::ctl::fail(status.message(), stoker::exit_code_for(status));
  }
}
