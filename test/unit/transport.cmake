cgx_test(handshake_test SOURCES handshake_test.cc LIBS cgx_transport)
