cgx_test(transport_message_test SOURCES transport_message_test.cc LIBS cgx_transport LABELS contract TIMEOUT 180)
