#include "tests/daemon/server/control_fixture.h"

#include "tests/support/eventually.h"

namespace stoker::server {

ControlServerTest::ControlServerTest() : busy_(boost::asio::make_work_guard(io_)) {
  options_.socket_path = root_ / "control.sock";
  options_.build = "1.2.3";
  options_.run = {.run_dir = "/runs/a b", .run_dir_id = "2049:17", .pid = 4711};
}

ControlServerTest::~ControlServerTest() {
  if (thread_.joinable()) {
    destroy();
    busy_.reset();
    io_.stop();
    thread_.join();
  }
  server_.reset();
}

void ControlServerTest::open() {
  server_ = std::make_unique<ControlServer>(io_, clock_, training_, options_);
  const Status started = server_->start();
  ASSERT_TRUE(started.ok()) << started.to_string();
}

void ControlServerTest::run() {
  thread_ = std::thread([this] { io_.run(); });
}

void ControlServerTest::stop() {
  run_on_server_thread([this] { server_->stop(); });
}

void ControlServerTest::destroy() {
  run_on_server_thread([this] { server_.reset(); });
}

control::TrainerStatus::Control ControlServerTest::counters() {
  return run_on_server_thread([this] { return server_->counters(); });
}

bool ControlServerTest::eventually(
    const std::function<bool(const control::TrainerStatus::Control&)>& condition) {
  return test::eventually([&] { return condition(counters()); });
}

}  // namespace stoker::server
