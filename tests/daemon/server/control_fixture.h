// ControlServerTest: a real control server on a Unix socket in a fresh directory. It runs on a
// separate thread as in the daemon, with FakeTraining and a manual clock.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include "daemon/server/control_server.h"
#include "tests/daemon/server/fake_training.h"
#include "tests/daemon/server/test_client.h"
#include "tests/support/temporary_directory.h"

namespace stoker::server {

class ControlServerTest : public testing::Test {
 protected:
  ControlServerTest();
  ~ControlServerTest() override;

  // Binds and listens, so that clients can connect. The server processes requests only after run().
  void open();
  void run();
  void start_serving() {
    open();
    run();
  }
  void stop();     // as the daemon does when training has ended
  void destroy();  // the server, not the io_context

  TestClient client() const { return TestClient(options_.socket_path); }

  // Runs on the server thread, later.
  void post(std::function<void()> function) { boost::asio::post(io_, std::move(function)); }

  // Read on the server thread.
  control::TrainerStatus::Control counters();
  // Waits until `condition` holds for the counters; false on timeout.
  bool eventually(const std::function<bool(const control::TrainerStatus::Control&)>& condition);

  const test::TemporaryDirectory root_{"/tmp"};  // a short path, whatever TMPDIR is
  ServerOptions options_;
  ManualClock clock_;
  FakeTraining training_;

 private:
  template <typename Function>
  auto run_on_server_thread(Function function) {
    std::packaged_task<decltype(function())()> task(std::move(function));
    auto done = task.get_future();
    boost::asio::post(io_, std::move(task));
    return done.get();
  }

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> busy_;
  std::unique_ptr<ControlServer> server_;
  std::thread thread_;
};

}  // namespace stoker::server
