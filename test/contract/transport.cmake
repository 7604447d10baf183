cgx_test(transport_message_test SOURCES transport_message_test.cc LIBS cgx_transport LABELS contract TIMEOUT 180)
cgx_test(transport_end_test SOURCES transport_end_test.cc LIBS cgx_transport LABELS contract TIMEOUT 180)
cgx_test(transport_connect_test SOURCES transport_connect_test.cc LIBS cgx_transport LABELS contract TIMEOUT 180)
cgx_test(transport_death_test SOURCES transport_death_test.cc LIBS cgx_transport LABELS contract TIMEOUT 180)
