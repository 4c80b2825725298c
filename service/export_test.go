package service

// Waiting is the number of StartRun calls that wait for an active run.
func (s *Service) Waiting() int {
	s.waiting.mu.Lock()
	defer s.waiting.mu.Unlock()
	return s.waiting.count
}
